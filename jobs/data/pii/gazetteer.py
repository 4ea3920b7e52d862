"""First names that are nothing but names, for the rule "known first name, then a surname".

Left out on purpose: names that are also everyday words (Grace, Deniz, Barış, Umut, Güneş, كريم,
جميل, نور, أمل): for those a cue word is needed. The lists are the author's own and short; a user's
own list (`--pii-terms`) is the way to high recall.
"""

from functools import cache

from .text import key

_ENGLISH = """
aaron adrian aidan alan albert alejandro alexander alfred alice alicia allison amanda amelia amy
andrea andrew angela anita ann anna anne annie anthony antonio arthur ashley audrey barbara
beatrice benjamin bernard beth bethany betty beverly bradley brandon brenda brian bridget bruce
bryan caitlin cameron carl carlos carol caroline carolyn catherine cecilia charles charlotte
cheryl chloe chris christian christina christine christopher cindy claire clara colin connor craig
cynthia daniel danielle darren david deborah debra denise dennis derek diana diane donald donna
dorothy douglas duncan dylan edward edwin eileen elaine eleanor elena elizabeth ellen emily emma
eric erica erin ethan eugene evelyn fiona florence frances francis francesca frederick gabriel
gareth gary geoffrey george gerald gillian gloria gordon graham gregory hannah harold harriet
harry heather helen henry howard hugh ian irene isaac isabel isabella isabelle jacob jacqueline
james jamie jane janet janice jason javier jean jeffrey jennifer jeremy jerome jerry jesse jessica
jill joan joanna joanne joel john johnny jonathan jordan jorge jose joseph joshua joyce juan
judith judy julia julian julie justin karen katherine kathleen kathryn katie keith kelly kenneth
kevin kimberly kyle laura lauren laurence lawrence leah leonard leslie liam linda lisa lloyd logan
lorraine louis louise lucas lucy luis luke lydia lynn madeline malcolm marco marcus margaret maria
marie marilyn marion martha martin mary mateo matthew maureen megan melanie melissa michael
michelle miguel mohit monica nancy naomi natalie natasha nathan neil nicholas nicola nicole nigel
noah nora norman oliver olivia oscar owen pamela patricia patrick paul paula pauline peter philip
phillip phoebe priya rachel ralph raymond rebecca richard robert robin rodney roger ronald
rosemary ross roy russell ruth ryan sabrina samantha samuel sandra sara sarah scott sean sergio
sharon sheila shirley simon sofia sophia sophie stacy stanley stephanie stephen steven stuart
susan suzanne sylvia tamara teresa terry theodore theresa thomas tiffany timothy tina tracy trevor
tyler valerie vanessa veronica vicky victoria vincent virginia walter wayne wendy wesley william
yvonne zachary zoe arjun deepak rajesh sanjay sunita anjali rahul vikram kofi kwame chinedu ngozi
oluwaseun yuki hiroshi wei xiao ivan dmitri olga natalia svetlana pierre francois giuseppe
giovanni hans klaus jurgen heinrich ingrid lars sven bjorn
"""
_TURKISH = """
abdullah abdurrahman adem adnan ahmet alper alperen alpay arda arzu asli asuman atakan atilla
aydin ayhan aykut ayla aylin aynur aysegul aysel aysen aysenur aysun ayse ayten banu batuhan
bayram begum belgin belma berat berk berkay berkan berke berna betul bilal bilge birgul birol
buket bulent burak burcu busra buse cafer cagatay cagla caglar canan cansu celal cem cemal cemil
cemile cengiz cenk ceren cevdet cihan cihat cuneyt damla davut didem dilan dilara dilek dogukan
dursun duygu ebru ecem eda efe egemen ekrem elif elifnur emel emin emine emir emirhan emrah emre
enes engin ercan erdal erdem erdinc eren ergun erhan erkan erol ersin ertugrul esin esma esra eyup
ezgi faruk fatih fatma fatmanur fehmi ferhat feride ferit fevzi feyza fikret filiz fuat funda
furkan gamze gizem gokce gokhan goksel gonul gozde gulay gulcan gulden guler gulhan gulizar gulnur
gulsah gulsen gulsum gulten guven hakan haldun halide halil halime halit haluk hamdi hamza handan
hanife harun hasan hasret hatice haydar hilal hulya huseyin husnu ibrahim idris ihsan ilayda ilhan
ilkay ilker ilknur inci ipek irem irfan ismail ismet izzet kaan kadir kadriye kamil kamuran kazim
kemal kenan kerem kerim koray korhan kubra kursat levent leyla mahmut mehmet mehmetcan melek melih
melike melis meliha meltem meral mert merve mesut metehan metin mevlut mine miray mucahit muhammet
muhammed muharrem muhittin munevver murat musa mustafa muzaffer nazan nazli nazmi necati necdet
necla nermin neslihan nesrin nevin nevzat nezih nihal nihan nihat nilay nilgun nilufer nimet
niyazi nuray nurcan nurdan nurettin nurgul nurhan nuri nuriye nursel nurten oguz oguzhan okan
oktay omer onur orhan osman ozan ozgur ozge ozkan ozlem pelin perihan pinar rabia rahime ramazan
rasim recep refik remzi resul ridvan rifat riza rukiye sabri sadik safak saban sahin saliha salih
samet sami sedat seda sefa selahattin selami selcuk selda selim selin selma semih semiha semra
sena senem serap serdar serhat serkan serpil sevcan sevda sevgi sevil sevim sevinc seyfi seyma
sibel sinan sinem songul suat sukran suleyman sultan sule sumeyye tahir tahsin talha tamer taner
tansu tarik tayfun tekin teoman tolga tugba tugce tulay tulin tuncay turan turgay turgut turhan
ufuk ugur ulku umit umran vedat veli veysel volkan yagmur yakup yasar yasemin yasin yavuz yelda
yeliz yener yesim yigit yilmaz yunus yusuf yuksel zafer zehra zekeriya zeki zeliha zerrin zeynep
ziya zuhal zubeyde oguzcan erdogan nazim abdulkadir
"""
_ARABIC = """
محمد أحمد محمود مصطفى عبدالله عبدالرحمن عبدالعزيز عبدالرحيم عبدالكريم عبدالملك عبداللطيف عبدالحميد
عبدالمجيد عبدالقادر عبدالفتاح عبدالناصر عبدالوهاب إبراهيم إسماعيل يوسف يعقوب إسحاق موسى عيسى هارون
سليمان داود عمر عمرو عثمان علي حسن حسين حسام حسان خالد وليد طارق زياد يزيد فيصل فهد سلطان تركي
بندر نواف نايف مشعل ماجد سعود عبدالإله راشد حمد حمدان خليفة منصور مبارك سيف ناصر سالم سليم سامي
سمير سامر رامي رائد رشيد رضوان بشير بلال جمال جابر جعفر حمزة هاني هشام هيثم ياسر ياسين يحيى زكريا
زين عادل عاطف عصام علاء عماد غسان فادي فارس فاروق قاسم كمال لؤي مازن مالك مجدي محسن مراد مروان
معاذ معتز مهند نبيل نزار نضال وائل وسام أسامة أشرف أمجد أنس أنور أيمن أيوب إيهاب باسل بدر تامر
ثامر جاسم حاتم حازم فاطمة عائشة خديجة مريم زينب رقية سارة نورة نوف هند هيفاء هدى هالة هاجر لمى
لينا ليلى لبنى لطيفة مها منى منال مشاعل مي ميساء نادية نجلاء نهى نسرين نوال هيا وفاء ياسمين يسرا
رانيا رنا رشا رغد ريم ريما رباب سلمى سمر سميرة سعاد سحر سوسن شيماء شهد شيخة صفية عبير عفاف غادة
غدير فدوى فريدة لجين ملاك موضي جواهر حصة حنان دلال دينا داليا دانة أروى أسماء أسيل ابتسام إسراء
إيناس بثينة بسمة بدرية تغريد تهاني جيهان رجاء زهراء سناء شروق شذى علياء عواطف
"""


@cache
def first_names() -> frozenset[str]:
    """Return the known Latin-script first names, as compare keys."""
    return frozenset(key(_ENGLISH + _TURKISH).split())


@cache
def arabic_names() -> frozenset[str]:
    """Return the known Arabic-script first names, as compare keys."""
    return frozenset(key(_ARABIC).split())
